package mend.hdfs.namenode;

/** A question: its number, the command, and the arguments. */
final class Question {
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
}
