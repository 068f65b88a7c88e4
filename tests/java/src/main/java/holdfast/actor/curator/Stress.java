package holdfast.actor.curator;

import holdfast.actor.Request;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.curator.framework.recipes.locks.InterProcessLock;

/**
 * {@code stress H file=F worker=N}: takes the lock and notes in a file that others have mapped, too, that it is
 * inside, until the file says that it is enough. The file (64-bit numbers): who is inside; a counter that is read
 * and written apart; how often somebody met another; whether to stop; from 16 on who is dead; from 64 on what each
 * has counted. Answers how often it was inside.
 */
final class Stress {
    private static final int INSIDE = 0;
    private static final int COUNTER = 8;
    private static final int MEETINGS = 16;
    private static final int STOP = 24;
    private static final int DEAD = 16 * 8;
    private static final int DONE = 64 * 8;
    private static final int SIZE = 128 * 8;

    private final InterProcessLock lock;
    private final Request request;

    Stress(InterProcessLock lock, Request request) {
        this.lock = lock;
        this.request = request;
    }

    private static void beInside(ByteBuffer file, long worker) throws InterruptedException {
        long met = file.getLong(INSIDE);
        if (met != 0 && file.getLong(DEAD + (int) met * 8) == 0) {
            file.putLong(MEETINGS, file.getLong(MEETINGS) + 1);
        }
        file.putLong(INSIDE, worker);
        long counter = file.getLong(COUNTER);
        Thread.sleep(ThreadLocalRandom.current().nextInt(2)); /* its work, in which it must be alone */
        file.putLong(COUNTER, counter + 1);
        if (file.getLong(INSIDE) != worker) {
            file.putLong(MEETINGS, file.getLong(MEETINGS) + 1);
        }
        file.putLong(DONE + (int) worker * 8, file.getLong(DONE + (int) worker * 8) + 1);
        file.putLong(INSIDE, 0);
    }

    Object run() throws Exception {
        long worker = request.number("worker");
        long rounds = 0;
        try (FileChannel channel = FileChannel.open(Path.of(request.text("file")),
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer file = channel.map(FileChannel.MapMode.READ_WRITE, 0, SIZE);
            file.order(ByteOrder.nativeOrder());
            while (file.getLong(STOP) == 0) {
                lock.acquire();
                try {
                    beInside(file, worker);
                } finally {
                    lock.release();
                }
                rounds++;
            }
        }
        return rounds;
    }
}
