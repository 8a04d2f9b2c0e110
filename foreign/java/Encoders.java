import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.io.erasurecode.ECBlock;
import org.apache.hadoop.io.erasurecode.ECChunk;
import org.apache.hadoop.io.erasurecode.ErasureCoderOptions;
import org.apache.hadoop.io.erasurecode.coder.HHXORErasureEncodingStep;
import org.apache.hadoop.io.erasurecode.rawcoder.RSLegacyRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RSRawEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.RawErasureEncoder;
import org.apache.hadoop.io.erasurecode.rawcoder.XORRawEncoder;
import org.apache.hadoop.hdds.client.ECReplicationConfig;

/** Hadoop's and Ozone's encoders behind the protocol of foreign/README.md. */
public final class Encoders {
    private Encoders() {}

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        OutputStream out = new BufferedOutputStream(System.out);
        for (String line = readLine(in); line != null; line = readLine(in)) {
            String[] words = line.split(" ");
            int k = Integer.parseInt(words[1]);
            int m = Integer.parseInt(words[2]);
            int bytes = Integer.parseInt(words[3]);
            byte[][] data = new byte[k][bytes];
            for (byte[] block : data) {
                in.readFully(block);
            }
            try {
                byte[][] parity = encode(words[0], data, m, bytes);
                out.write("ok\n".getBytes(StandardCharsets.US_ASCII));
                for (byte[] block : parity) {
                    out.write(block);
                }
            } catch (Exception refused) {
                String reason = refused.toString().replace('\n', ' ');
                out.write(("error " + reason + "\n").getBytes(StandardCharsets.UTF_8));
            }
            out.flush();
        }
    }

    private static String readLine(DataInputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next != '\n'; next = in.read()) {
            if (next < 0) {
                return null;
            }
            line.append((char) next);
        }
        return line.toString();
    }

    private static byte[][] encode(String name, byte[][] data, int m, int bytes) throws IOException {
        byte[][] parity = new byte[m][bytes];
        ErasureCoderOptions options = new ErasureCoderOptions(data.length, m);
        switch (name) {
            case "hadoop-rs" -> raw(new RSRawEncoder(options), data, parity);
            case "hadoop-rs-legacy" -> raw(new RSLegacyRawEncoder(options), data, parity);
            case "hadoop-xor" -> raw(new XORRawEncoder(options), data, parity);
            case "hadoop-hhxor" -> hitchhiker(options, data, parity);
            case "ozone-rs" -> new org.apache.ozone.erasurecode.rawcoder.RSRawEncoder(
                new ECReplicationConfig(data.length, m)).encode(data, parity);
            case "ozone-xor" -> new org.apache.ozone.erasurecode.rawcoder.XORRawEncoder(
                new ECReplicationConfig(data.length, m)).encode(data, parity);
            default -> throw new IllegalArgumentException("no encoder " + name);
        }
        return parity;
    }

    private static void raw(RawErasureEncoder encoder, byte[][] data, byte[][] parity) throws IOException {
        // Encoders may change their inputs unless told otherwise.
        byte[][] copies = new byte[data.length][];
        for (int i = 0; i < data.length; i++) {
            copies[i] = data[i].clone();
        }
        encoder.encode(copies, parity);
    }

    /** Hitchhiker takes the first halves of all blocks, then the second halves. */
    private static void hitchhiker(ErasureCoderOptions options, byte[][] data, byte[][] parity) throws IOException {
        int half = parity[0].length / 2;
        HHXORErasureEncodingStep step = new HHXORErasureEncodingStep(
            blocks(data.length, false), blocks(parity.length, true),
            new RSRawEncoder(options), new XORRawEncoder(options));
        step.performCoding(halves(data, half), halves(parity, half));
    }

    private static ECBlock[] blocks(int count, boolean isParity) {
        ECBlock[] blocks = new ECBlock[count];
        for (int i = 0; i < count; i++) {
            blocks[i] = new ECBlock(isParity, false);
        }
        return blocks;
    }

    private static ECChunk[] halves(byte[][] blocks, int half) {
        ECChunk[] chunks = new ECChunk[2 * blocks.length];
        for (int i = 0; i < blocks.length; i++) {
            chunks[i] = new ECChunk(blocks[i], 0, half);
            chunks[blocks.length + i] = new ECChunk(blocks[i], half, half);
        }
        return chunks;
    }
}
