package mend.client;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Converts JSON to and from {@link Map}, {@link List}, {@link String}, {@link Long}, {@link Double}, {@link
 * Boolean} and null.
 *
 * <p>It is our own code, so that programs that embed this library get no second version of a JSON library on
 * their class path. The parser accepts untrusted input: invalid JSON causes a {@link MendException}, and the
 * nesting depth is limited.
 */
final class Json {
  private static final int MAX_DEPTH = 64;

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Parses one value. */
  static Object parse(byte[] bytes) throws MendException {
    Json json = new Json(new String(bytes, StandardCharsets.UTF_8));
    Object value = json.value(0);
    json.skipSpace();
    if (json.at != json.text.length()) {
      throw json.malformed("unexpected text after the value");
    }
    return value;
  }

  /** Parses an object. */
  static Node parseObject(byte[] bytes) throws MendException {
    return new Node(parse(bytes), "the message");
  }

  private Object value(int depth) throws MendException {
    if (depth > MAX_DEPTH) {
      throw malformed("values are nested too deeply");
    }
    skipSpace();
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", Boolean.TRUE);
      case 'f':
        return word("false", Boolean.FALSE);
      case 'n':
        return word("null", null);
      default:
        return number();
    }
  }

  private Map<String, Object> object(int depth) throws MendException {
    Map<String, Object> object = new LinkedHashMap<>();
    at++;
    skipSpace();
    if (peek() == '}') {
      at++;
      return object;
    }
    while (true) {
      skipSpace();
      String key = string();
      skipSpace();
      expect(':');
      object.put(key, value(depth + 1));
      if (!continues('}')) {
        return object;
      }
    }
  }

  private List<Object> array(int depth) throws MendException {
    List<Object> array = new ArrayList<>();
    at++;
    skipSpace();
    if (peek() == ']') {
      at++;
      return array;
    }
    while (true) {
      array.add(value(depth + 1));
      if (!continues(']')) {
        return array;
      }
    }
  }

  /** Consumes a comma or the closing character {@code end}; returns true if it was a comma. */
  private boolean continues(char end) throws MendException {
    skipSpace();
    char next = peek();
    if (next != ',' && next != end) {
      throw malformed("expected a comma or " + end);
    }
    at++;
    return next == ',';
  }

  private String string() throws MendException {
    expect('"');
    StringBuilder string = new StringBuilder();
    while (true) {
      char next = take();
      if (next == '"') {
        return string.toString();
      } else if (next == '\\') {
        string.append(escaped());
      } else if (next < ' ') {
        throw malformed("a control character in a string");
      } else {
        string.append(next);
      }
    }
  }

  private char escaped() throws MendException {
    char kind = take();
    int plain = "\"\\/bfnrt".indexOf(kind);
    if (plain >= 0) {
      return "\"\\/\b\f\n\r\t".charAt(plain);
    }
    if (kind != 'u' || at + 4 > text.length()) {
      throw malformed("invalid escape sequence");
    }
    int code = 0;
    for (int digit = 0; digit < 4; digit++) {
      int value = Character.digit(take(), 16);
      if (value < 0) {
        throw malformed("invalid escape sequence");
      }
      code = code << 4 | value;
    }
    return (char) code;
  }

  /**
   * Parses a number. Integers of up to 64 bits become {@link Long}; all other numbers become approximate
   * {@link Double}s.
   */
  private Object number() throws MendException {
    int start = at;
    while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    String digits = text.substring(start, at);
    try {
      return Long.valueOf(digits);
    } catch (NumberFormatException larger) {
      try {
        return new BigDecimal(digits).doubleValue();
      } catch (NumberFormatException none) {
        throw malformed("expected a value");
      }
    }
  }

  private Object word(String word, Object value) throws MendException {
    if (!text.startsWith(word, at)) {
      throw malformed("expected a value");
    }
    at += word.length();
    return value;
  }

  private void skipSpace() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private void expect(char wanted) throws MendException {
    if (take() != wanted) {
      throw malformed(wanted + " is due");
    }
  }

  private char peek() throws MendException {
    if (at >= text.length()) {
      throw malformed("the text ends too early");
    }
    return text.charAt(at);
  }

  private char take() throws MendException {
    char next = peek();
    at++;
    return next;
  }

  private MendException malformed(String what) {
    return new MendException(MendException.Kind.PROTOCOL, "not JSON at character " + at + ": " + what);
  }

  /** Serializes a value. */
  static byte[] write(Object value) {
    StringBuilder out = new StringBuilder();
    append(out, value);
    return out.toString().getBytes(StandardCharsets.UTF_8);
  }

  private static void append(StringBuilder out, Object value) {
    if (value instanceof Map) {
      String comma = "{";
      for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
        append(out.append(comma), entry.getKey().toString());
        append(out.append(':'), entry.getValue());
        comma = ",";
      }
      out.append(comma.equals("{") ? "{}" : "}");
    } else if (value instanceof List) {
      String comma = "[";
      for (Object element : (List<?>) value) {
        append(out.append(comma), element);
        comma = ",";
      }
      out.append(comma.equals("[") ? "[]" : "]");
    } else if (value instanceof String) {
      quote(out, (String) value);
    } else {
      out.append(value); // Numbers, booleans and null are written as Java prints them.
    }
  }

  private static void quote(StringBuilder out, String string) {
    out.append('"');
    for (int i = 0; i < string.length(); i++) {
      char next = string.charAt(i);
      if (next == '"' || next == '\\') {
        out.append('\\').append(next);
      } else if (next < ' ') {
        out.append(String.format("\\u%04x", (int) next));
      } else {
        out.append(next);
      }
    }
    out.append('"');
  }

  /** Creates an object with several fields: {@code object("a", 1L, "b", null)}. */
  static Map<String, Object> object(Object... fields) {
    Map<String, Object> object = new LinkedHashMap<>();
    for (int i = 0; i < fields.length; i += 2) {
      object.put((String) fields[i], fields[i + 1]);
    }
    return object;
  }

  /**
   * A parsed value with typed accessors. A type mismatch causes a {@link MendException} that names the value.
   */
  static final class Node {
    private final Object value;
    private final String name;

    Node(Object value, String name) {
      this.value = value;
      this.name = name;
    }

    boolean isNull() {
      return value == null;
    }

    /** Returns a field of this object; a null value if the field is absent. */
    Node get(String field) throws MendException {
      return new Node(as(Map.class, "an object").get(field), field);
    }

    /**
     * Returns the name of the only field, which is the type of a message or report. If the value is a text
     * and not an object, the text is the type.
     */
    String onlyKey() throws MendException {
      if (value instanceof String) {
        return (String) value;
      }
      Map<?, ?> object = as(Map.class, "an object");
      if (object.size() != 1) {
        throw wrong("an object of one field");
      }
      return object.keySet().iterator().next().toString();
    }

    List<Node> list() throws MendException {
      List<Node> nodes = new ArrayList<>();
      for (Object element : (List<?>) as(List.class, "a list")) {
        nodes.add(new Node(element, name));
      }
      return nodes;
    }

    String text() throws MendException {
      return as(String.class, "a text");
    }

    /** Returns the text; null for a null value. */
    String textOrNull() throws MendException {
      return isNull() ? null : text();
    }

    boolean isTrue() {
      return Boolean.TRUE.equals(value);
    }

    long number() throws MendException {
      return as(Long.class, "a whole number");
    }

    /** Returns a number from 0 to {@code most}. */
    int count(long most) throws MendException {
      long number = number();
      if (number < 0 || number > most) {
        throw wrong("a number from 0 to " + most);
      }
      return (int) number;
    }

    private <T> T as(Class<T> wanted, String what) throws MendException {
      if (!wanted.isInstance(value)) {
        throw wrong(what);
      }
      return wanted.cast(value);
    }

    private MendException wrong(String wanted) {
      return new MendException(MendException.Kind.PROTOCOL, "`" + name + "` is not " + wanted);
    }

    @Override
    public String toString() {
      return new String(write(value), StandardCharsets.UTF_8);
    }
  }
}
