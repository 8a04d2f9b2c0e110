package mend.hdfs.namenode;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/** Writes the lines of several concurrent answers to the output. */
final class Answers {
  private final PrintStream output;
  private final BlockTokens tokens;
  private final ActiveNameNode active;
  private DFSClient client;

  Answers(PrintStream output, BlockTokens tokens, ActiveNameNode active) {
    this.output = output;
    this.tokens = tokens;
    this.active = active;
  }

  /** Answers a question, or reports why it failed. */
  void answer(Question question, DistributedFileSystem files, Configuration conf) {
    Lines lines = new Lines(this, question.number);
    try {
      if (Changes.has(question.word)) {
        change(question, conf, lines);
      } else {
        active.lead(files.getClient().getNamenode());
        look(question, files, conf, lines);
      }
      lines.add("done");
    } catch (FileNotFoundException gone) {
      lines.add("done"); // The file was deleted.
    } catch (IOException | RuntimeException | Error problem) {
      lines.add("failed " + text(problem));
    }
    lines.flush();
  }

  private void change(Question question, Configuration conf, Lines lines) throws IOException {
    DFSClient client = client(conf);
    try {
      active.lead(client.getNamenode());
    } catch (IOException problem) {
      throw new IOException(Changes.kind(problem) + " " + text(problem), problem);
    }
    new Changes(client, tokens, lines).carryOut(question.word, question.rest);
  }

  private void look(Question question, DistributedFileSystem files, Configuration conf, Lines lines)
      throws IOException {
    Survey survey = new Survey(files, conf, lines);
    switch (question.word) {
      case "list":
        survey.list(paths(question.rest));
        break;
      case "files":
        survey.files(question.rest.split("\t"));
        break;
      case "raided":
        survey.raided(question.rest.split("\t"));
        break;
      case "blocks":
        survey.blocks(question.rest.split(" "));
        break;
      case "attributes":
        survey.attributes(question.rest.split("\t"));
        break;
      case "missing":
        survey.missing(paths(question.rest));
        break;
      case "walk":
        survey.walk(question.rest.split("\t"));
        break;
      case "snapshots":
        survey.snapshots(paths(question.rest));
        break;
      case "inodes":
        survey.inodes(question.rest.split(","));
        break;
      case "position":
        new Edits(files.getClient(), lines).position();
        break;
      case "edits":
        new Edits(files.getClient(), lines).since(Long.parseLong(question.rest));
        break;
      case "counts":
        new Losses(files, conf, lines).counts();
        break;
      case "others":
        new Losses(files, conf, lines).others();
        break;
      case "losses":
        new Losses(files, conf, lines).list();
        break;
      case "lost":
        new Losses(files, conf, lines).files();
        break;
      case "nodes":
        survey.nodes();
        break;
      case "volumes":
        survey.volumes();
        break;
      case "group":
        String[] words = question.rest.split(" ");
        survey.group(Survey.path(words[0]), Long.parseLong(words[1]));
        break;
      case "checksum":
        String[] held = question.rest.split(" ");
        survey.checksum(Survey.path(held[0]), Long.parseLong(held[1]));
        break;
      case "touch":
        String[] touched = question.rest.split(" ");
        survey.touch(Survey.path(touched[0]), Long.parseLong(touched[1]), touched[2]);
        break;
      case "report":
        survey.report(question.rest);
        break;
      case "tokens":
        String[] asked = question.rest.split(" ");
        survey.tokens(Survey.path(asked[0]), Long.parseLong(asked[1]), asked[2].split(","), tokens);
        break;
      default:
        throw new IOException("this version does not support the request " + question.word);
    }
  }

  private static String[] paths(String words) {
    return Arrays.stream(words.split("\t")).map(Survey::decoded).toArray(String[]::new);
  }

  /** Returns HDFS's own client, which does not decode lost blocks, even if the configuration names Mend's. */
  private synchronized DFSClient client(Configuration conf) throws IOException {
    if (client == null) {
      client = new DFSClient(FileSystem.getDefaultUri(conf), conf);
    }
    return client;
  }

  /** Returns the first line of a message. */
  static String text(Throwable problem) {
    String said = problem.getMessage() == null ? problem.toString() : problem.getMessage();
    return said.lines().filter(line -> !line.isBlank()).findFirst().orElse(problem.getClass().getName());
  }

  void say(String line) {
    write(line + "\n");
  }

  /** Writes complete lines. */
  synchronized void write(String lines) {
    byte[] bytes = lines.getBytes(StandardCharsets.UTF_8);
    output.write(bytes, 0, bytes.length);
    output.flush();
    if (output.checkError()) {
      System.exit(1); // The coordinator has closed its end.
    }
  }

  /**
   * The lines of one answer, written in batches. Lines are delayed only briefly, because the coordinator
   * treats silence as a failure.
   */
  static final class Lines {
    private static final int FULL = 1 << 16;
    private static final long KEPT_AT_MOST_NS = TimeUnit.SECONDS.toNanos(1);
    private final Answers answers;
    private final String number;
    private final StringBuilder text = new StringBuilder();
    private long writtenNs = System.nanoTime();

    Lines(Answers answers, String number) {
      this.answers = answers;
      this.number = number;
    }

    /** Adds a line. Line breaks in it, for example in the name of a DataNode's folder, become spaces. */
    void add(String line) {
      String single = line.replace('\n', ' ').replace('\r', ' ');
      text.append(number).append(' ').append(single).append('\n');
      if (text.length() >= FULL || isDue()) {
        flush();
      }
    }

    /**
     * Reports the progress of a walk if no line was written for a second. Called after each answer of the
     * NameNode.
     */
    void tellProgress(long folders, long files) {
      if (isDue()) {
        add("a " + folders + " " + files);
      }
    }

    private boolean isDue() {
      return System.nanoTime() - writtenNs >= KEPT_AT_MOST_NS;
    }

    void flush() {
      answers.write(text.toString());
      text.setLength(0);
      writtenNs = System.nanoTime();
    }
  }
}
