package mend.hdfs.namenode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class QuestionTest {
  @Test
  void questionsThatMayWaitForDataNodesOrWalksAreLong() {
    assertTrue(Question.of("7 group 16386 0").isShort());
    assertTrue(Question.of("7 nodes").isShort());
    for (String words : List.of("list /", "walk %2Fa", "snapshots /", "volumes", "checksum 7 0", "losses")) {
      assertFalse(Question.of("7 " + words).isShort(), words);
    }
  }

  @Test
  void aQuestionHasThreeParts() {
    Question question = Question.of("7 group 16386 0");
    assertEquals(List.of("7", "group", "16386 0"), List.of(question.number, question.word, question.rest));
  }
}
