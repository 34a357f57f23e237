package peers;

import java.util.Arrays;

/** The transform that all pipelines of the benchmark run: benchmarks/transforms.py, byte for byte. */
final class Twenty {
    static final int OUTPUTS = 20;
    private static final int OUTPUT_BYTES = 178;
    private static final int TIME_DIGITS = 13;

    /** Returns output {@code number} of a session that ended at this time, in milliseconds since 1970. */
    static byte[] output(long endedAtMs, int number) {
        byte[] value = new byte[OUTPUT_BYTES];
        Arrays.fill(value, (byte) 'x');
        digits(value, 0, TIME_DIGITS, endedAtMs);
        value[TIME_DIGITS] = ' ';
        digits(value, TIME_DIGITS + 1, 2, number);
        value[TIME_DIGITS + 3] = ' ';
        return value;
    }

    private static void digits(byte[] into, int from, int count, long number) {
        long left = number;
        for (int at = from + count - 1; at >= from; at--) {
            into[at] = (byte) ('0' + left % 10);
            left /= 10;
        }
    }
}
