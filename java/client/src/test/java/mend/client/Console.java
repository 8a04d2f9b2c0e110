package mend.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Paths;
import java.time.Duration;

/**
 * A requestor driven by commands, for tests with real processes (crates/cli/tests/faults/java.rs). Its
 * arguments are the addresses of the API and the control port, the cluster folder, and the folder of the
 * certificate in it. Each input line is a command with words separated by spaces. Each answer is a line,
 * either {@code ok BYTES} followed by that many bytes, or {@code KIND MESSAGE}.
 */
public final class Console {
  private static final Duration PATIENCE = Duration.ofSeconds(40);

  private final Settings settings;
  private MendClient mend;

  private Console(Settings settings) {
    this.settings = settings;
    this.mend = new MendClient(settings);
  }

  public static void main(String[] arguments) throws IOException {
    PrintStream answers = System.out;
    Console console;
    try {
      Credentials credentials = Credentials.load(Paths.get(arguments[2]), arguments[3]);
      console = new Console(Settings.of(arguments[0], arguments[1], credentials).withPatience(PATIENCE));
    } catch (MendException problem) {
      answers.print(problem.kind() + " " + problem.getMessage() + "\n");
      return;
    }
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      try {
        byte[] said = console.run(line.split(" "));
        answers.print("ok " + said.length + "\n");
        answers.write(said);
      } catch (MendException problem) {
        answers.print(problem.kind() + " " + problem.getMessage().replace('\n', ' ') + "\n");
      }
      answers.flush();
    }
  }

  private byte[] run(String[] words) throws IOException {
    switch (words[0]) {
      case "scheme":
        mend.close();
        mend = new MendClient(settings.withScheme(words[1]));
        return new byte[0];
      case "read": {
        ByteBuffer target = ByteBuffer.allocate(Integer.parseInt(words[4]) - Integer.parseInt(words[3]));
        mend.read(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), target);
        return target.array();
      }
      case "stream":
        try (InputStream stream = open(words)) {
          return stream.readAllBytes();
        }
      case "check":
        mend.check();
        return new byte[0];
      case "give-up": // Closes the stream after one byte.
        try (InputStream stream = open(words)) {
          return stream.readNBytes(1);
        }
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private InputStream open(String[] words) {
    return mend.open(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]));
  }
}
