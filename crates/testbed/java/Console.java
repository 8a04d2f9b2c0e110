import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.tools.DFSAdmin;
import org.apache.hadoop.hdfs.tools.DFSck;
import org.apache.hadoop.hdfs.tools.DebugAdmin;
import org.apache.hadoop.hdfs.tools.ECAdmin;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.util.GenericOptionsParser;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * The command line of HDFS, with one JVM for many commands. Each input line is a command with words separated by tabs:
 * {@code fsck	/}. Each answer is a line with the exit code and the length of the command's output in bytes, followed by
 * the output.
 */
public final class Console {
  private static final int BUFFER_BYTES = 64 << 10;

  private Console() {}

  public static void main(String[] arguments) throws Exception {
    HdfsConfiguration conf = new HdfsConfiguration();
    String[] rest = new GenericOptionsParser(conf, arguments).getRemainingArgs();
    if (rest.length == 2 && rest[0].equals("train")) {
      try {
        train(conf, new File(rest[1]));
        System.exit(0);
      } catch (Exception problem) {
        problem.printStackTrace();
        System.exit(1); // Otherwise the daemons' threads would keep the JVM alive.
      }
    }
    PrintStream answers = System.out;
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      ByteArrayOutputStream said = new ByteArrayOutputStream();
      int code = run(conf, line.split("\t", -1), new PrintStream(said, true, "UTF-8"));
      answers.print(code + " " + said.size() + "\n");
      said.writeTo(answers);
      answers.flush();
    }
  }

  private static int run(Configuration conf, String[] words, PrintStream said) {
    PrintStream out = System.out;
    PrintStream err = System.err;
    System.setOut(said);
    System.setErr(said);
    try {
      return ToolRunner.run(tool(conf, words[0], said), Arrays.copyOfRange(words, 1, words.length));
    } catch (Exception problem) {
      problem.printStackTrace(said);
      return -1;
    } finally {
      said.flush();
      System.setOut(out);
      System.setErr(err);
    }
  }

  /**
   * {@code pread CLASS PATH OFFSETS BYTES LOCAL}: reads this many bytes at each offset with positional reads, one after
   * another, and writes them to a local file. Uses a file system of the given class, which is kept for later commands,
   * or a {@code FileContext} if the class is an {@code AbstractFileSystem}. The class may be followed by settings, each
   * as {@code ;KEY=VALUE}; for each combination a file system is kept. Prints the microseconds of each read, and the
   * bytes that degraded reads through Mend have returned so far.
   */
  private static final class PositionalRead extends Configured implements Tool {
    private static final Map<String, FileSystem> KEPT = new HashMap<>();

    PositionalRead(Configuration conf) {
      super(conf);
    }

    @Override
    public int run(String[] words) throws Exception {
      byte[] bytes = new byte[Integer.parseInt(words[3])];
      StringBuilder micros = new StringBuilder();
      try (FSDataInputStream in = open(words[0], new Path(words[1]));
          OutputStream local = Files.newOutputStream(Paths.get(words[4]))) {
        for (String offset : words[2].split(",")) {
          long startNs = System.nanoTime();
          in.readFully(Long.parseLong(offset), bytes);
          micros.append(micros.length() == 0 ? "" : ",").append((System.nanoTime() - startNs) / 1000);
          local.write(bytes);
        }
      }
      System.out.println("micros " + micros + " mend " + throughMend(KEPT.get(words[0])));
      return 0;
    }

    private FSDataInputStream open(String system, Path path) throws Exception {
      Configuration mine = new Configuration(getConf());
      String[] parts = system.split(";");
      for (int at = 1; at < parts.length; at++) {
        String[] setting = parts[at].split("=", 2);
        mine.set(setting[0], setting[1]);
      }
      if (AbstractFileSystem.class.isAssignableFrom(mine.getClassByName(parts[0]))) {
        mine.set("fs.AbstractFileSystem.hdfs.impl", parts[0]);
        return FileContext.getFileContext(mine).open(path);
      }
      if (!KEPT.containsKey(system)) {
        mine.set("fs.hdfs.impl", parts[0]);
        KEPT.put(system, FileSystem.newInstance(mine));
      }
      return KEPT.get(system).open(path);
    }

    /** Uses reflection, since this console is built without Mend's jar. */
    private static long throughMend(FileSystem system) throws Exception {
      try {
        Object reads = system.getClass().getMethod("degradedReads").invoke(system);
        return (long) reads.getClass().getMethod("bytes").invoke(reads);
      } catch (NoSuchMethodException | NullPointerException without) {
        return 0;
      }
    }
  }

  /**
   * {@code store LOCAL PATH BYTES REPLICATION}: stores a local file in blocks of this size. Files in a folder with an
   * erasure coding policy are not replicated. Prints the inode number. {@code dfs -D dfs.blocksize=… -put} would use the
   * block size of the first command, whose file system Hadoop keeps.
   */
  private static final class Store extends Configured implements Tool {
    Store(Configuration conf) {
      super(conf);
    }

    @Override
    public int run(String[] words) throws Exception {
      short replication = Short.parseShort(words[3]);
      DistributedFileSystem system = (DistributedFileSystem) FileSystem.get(getConf());
      try (OutputStream out =
          system.create(new Path(words[1]), true, BUFFER_BYTES, replication, Long.parseLong(words[2]))) {
        Files.copy(Paths.get(words[0]), out);
      }
      System.out.println(system.getClient().getFileInfo(words[1]).getFileId());
      return 0;
    }
  }

  /** {@code shell CLASS ARGUMENTS}: runs a command of {@code dfs} with a file system of the given class. */
  private static final class Shell extends Configured implements Tool {
    Shell(Configuration conf) {
      super(conf);
    }

    @Override
    public int run(String[] words) throws Exception {
      Configuration mine = new Configuration(getConf());
      mine.set("fs.hdfs.impl", words[0]);
      mine.setBoolean("fs.hdfs.impl.disable.cache", true);
      return new FsShell(mine).run(Arrays.copyOfRange(words, 1, words.length));
    }
  }

  /**
   * {@code lacking PATH}: for all files below the path, counts the blocks, or internal blocks of groups, for which no
   * DataNode is listed.
   */
  private static final class Lacking extends Configured implements Tool {
    Lacking(Configuration conf) {
      super(conf);
    }

    @Override
    public int run(String[] words) throws Exception {
      RemoteIterator<LocatedFileStatus> files = FileSystem.get(getConf()).listFiles(new Path(words[0]), true);
      int lacking = 0;
      while (files.hasNext()) {
        HdfsLocatedFileStatus file = (HdfsLocatedFileStatus) files.next();
        for (LocatedBlock block : file.getLocatedBlocks().getLocatedBlocks()) {
          lacking += block instanceof LocatedStripedBlock
              ? lacking((LocatedStripedBlock) block, file.getErasureCodingPolicy())
              : block.getLocations().length == 0 ? 1 : 0;
        }
      }
      System.out.println(lacking);
      return 0;
    }

    private static long lacking(LocatedStripedBlock group, ErasureCodingPolicy policy) {
      long cells = (group.getBlock().getNumBytes() + policy.getCellSize() - 1) / policy.getCellSize();
      long blocks = Math.min(cells, policy.getNumDataUnits()) + policy.getNumParityUnits();
      BitSet listed = new BitSet();
      for (byte index : group.getBlockIndices()) {
        listed.set(index);
      }
      return blocks - listed.cardinality();
    }
  }

  /** {@code distrust PATH INDEX}: reports this internal block of the first group as corrupt, as a reader does. */
  private static final class Distrust extends Configured implements Tool {
    Distrust(Configuration conf) {
      super(conf);
    }

    @Override
    public int run(String[] words) throws Exception {
      DFSClient client = ((DistributedFileSystem) FileSystem.get(getConf())).getClient();
      LocatedBlocks located = client.getLocatedBlocks(words[0], 0);
      ErasureCodingPolicy policy = located.getErasureCodingPolicy();
      LocatedBlock[] blocks = StripedBlockUtil.parseStripedBlockGroup((LocatedStripedBlock) located.get(0),
          policy.getCellSize(), policy.getNumDataUnits(), policy.getNumParityUnits());
      client.getNamenode().reportBadBlocks(new LocatedBlock[] {blocks[Integer.parseInt(words[1])]});
      return 0;
    }
  }

  private static Tool tool(Configuration conf, String name, PrintStream said) throws Exception {
    switch (name) {
      case "dfs":
        return new FsShell(conf);
      case "dfsadmin":
        return new DFSAdmin(conf);
      case "ec":
        return new ECAdmin(conf);
      case "fsck":
        return new DFSck(conf, said);
      case "pread":
        return new PositionalRead(conf);
      case "store":
        return new Store(conf);
      case "shell":
        return new Shell(conf);
      case "lacking":
        return new Lacking(conf);
      case "distrust":
        return new Distrust(conf);
      case "debug":
        return new DebugAdmin(conf);
      default:
        throw new IllegalArgumentException("no such command: " + name);
    }
  }

  /** Loads the daemons' classes, so that a class archive for faster starts can be recorded. */
  private static void train(Configuration conf, File folder) throws Exception {
    DefaultMetricsSystem.setMiniClusterMode(true); // Permits two NameNodes in one JVM: one formats, one runs.
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:0");
    conf.set("dfs.namenode.http-address", "127.0.0.1:0");
    conf.set("dfs.namenode.name.dir", new File(folder, "name").toURI().toString());
    conf.set("dfs.datanode.data.dir", new File(folder, "data").toURI().toString());
    for (String address : new String[] {"address", "ipc.address", "http.address"}) {
      conf.set("dfs.datanode." + address, "127.0.0.1:0");
    }
    NameNode.format(conf);
    NameNode names = NameNode.createNameNode(new String[0], conf);
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + names.getNameNodeAddress().getPort());
    DataNode data = DataNode.createDataNode(new String[0], conf);
    File source = new File(folder, "name/current/VERSION");
    run(conf, new String[] {"dfs", "-put", source.getPath(), "/file"}, System.out);
    run(conf, new String[] {"dfs", "-cat", "/file"}, System.out);
    run(conf, new String[] {"fsck", "/"}, System.out);
    data.shutdown();
    names.stop();
  }
}
