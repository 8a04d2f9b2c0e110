package mend.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.junit.jupiter.api.Test;

class JsonTest {
  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String again(String text) throws MendException {
    return new String(Json.write(Json.parse(bytes(text))), StandardCharsets.UTF_8);
  }

  @Test
  void whatIsWrittenReadsBack() throws MendException {
    for (String text : new String[] {
        "null", "true", "-12", "\"\"", "[]", "{}", "[1,[2,{\"a\":null}],\"b\"]", "{\"x\":{\"y\":[false,9007199254740993]}}",
        "\"Grüße, \\\"Ω\\\" \\\\ \\u0007\""}) {
      assertEquals(text, again(text));
    }
    assertEquals("[1,2]", again(" [ 1 ,\n\t2 ] "));
    assertEquals("\"\\u000a/\u00e9\"", again("\"\\n\\/\\u00E9\""));
    assertEquals("1.8446744073709552E19", again("18446744073709551615"));
  }

  @Test
  void whatIsNotJsonIsRefused() {
    for (String text : new String[] {
        "", "{", "[1", "[1 2]", "{\"a\" 1}", "{\"a\":1,}", "tru", "nul", "\"", "\"\\x\"", "\"\\u12\"", "\"\u0001\"", "1 2", "-", "+",
        "e", "{1:2}", "[".repeat(10_000)}) {
      MendException problem = assertThrows(MendException.class, () -> Json.parse(bytes(text)), text);
      assertEquals(MendException.Kind.PROTOCOL, problem.kind());
    }
  }

  @Test
  void anyBytesAreReadOrRefused() {
    Random random = new Random(7);
    byte[] seed = bytes("{\"assign\":{\"job\":1,\"lanes\":[{\"r\":[2,0,1]},null],\"key\":\"2566\\u00e9\",\"x\":-1.5e3,\"t\":true}}");
    for (int run = 0; run < 20_000; run++) {
      byte[] mutated = seed.clone();
      for (int change = random.nextInt(4); change >= 0; change--) {
        mutated[random.nextInt(mutated.length)] = (byte) random.nextInt(256);
      }
      try {
        Json.parse(mutated);
      } catch (MendException refused) {
        assertEquals(MendException.Kind.PROTOCOL, refused.kind());
      }
    }
  }

  @Test
  void aWrongFieldIsNamed() throws MendException {
    Json.Node message = Json.parseObject(bytes("{\"job\":\"x\",\"none\":null,\"few\":7}"));
    String said = assertThrows(MendException.class, () -> message.get("job").number()).getMessage();
    assertEquals("`job` is not a whole number", said);
    assertTrue(message.get("none").isNull() && message.get("absent").isNull());
    assertThrows(MendException.class, () -> message.get("few").count(6));
    assertThrows(MendException.class, message::onlyKey);
  }
}
