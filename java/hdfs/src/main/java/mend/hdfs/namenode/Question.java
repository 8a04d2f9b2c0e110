package mend.hdfs.namenode;

import java.util.Set;

/** A question: its number, the command, and the arguments. */
final class Question {
  /** Questions that a few calls of the NameNode answer. */
  private static final Set<String> SHORT = Set.of("group", "blocks", "tokens", "counts", "nodes", "position");
  final String number;
  final String word;
  final String rest;

  private Question(String number, String word, String rest) {
    this.number = number;
    this.word = word;
    this.rest = rest;
  }

  static Question of(String line) {
    String[] words = line.split(" ", 3);
    return new Question(words[0], words.length > 1 ? words[1] : "", words.length > 2 ? words[2] : "");
  }

  /**
   * Whether a few calls of the NameNode answer the question. The other questions walk through files, or wait for
   * DataNodes that may not answer.
   */
  boolean isShort() {
    return SHORT.contains(word);
  }
}
