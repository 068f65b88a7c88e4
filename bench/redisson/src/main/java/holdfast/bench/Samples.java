package holdfast.bench;

import java.util.Arrays;

/** How long each pair of one worker took, in microseconds. Not thread-safe. */
final class Samples {
    private int[] micros = new int[1 << 16];
    private int count;

    void add(long nanos) {
        if (count == micros.length) {
            micros = Arrays.copyOf(micros, count * 2);
        }
        micros[count++] = (int) Math.min(nanos / 1000, Integer.MAX_VALUE);
    }

    int count() {
        return count;
    }

    /** All samples of all workers, sorted. */
    static int[] merge(Iterable<Samples> parts) {
        int total = 0;
        for (Samples part : parts) {
            total += part.count;
        }
        int[] all = new int[total];
        int at = 0;
        for (Samples part : parts) {
            System.arraycopy(part.micros, 0, all, at, part.count);
            at += part.count;
        }
        Arrays.sort(all);
        return all;
    }

    static int percentile(int[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(int) ((long) (sorted.length - 1) * percent / 100)];
    }
}
