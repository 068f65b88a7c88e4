package holdfast.actor;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * One logical actor: a Java thread of its own that lives as long as the program, so that its thread
 * id, and with it its owner name on the server, never changes. Its commands run one by one.
 */
final class Actor {
    private final BlockingQueue<Runnable> commands = new LinkedBlockingQueue<>();
    private final Thread thread;

    Actor(String name) {
        thread = new Thread(this::run, "actor-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    private void run() {
        while (true) {
            Runnable next;
            try {
                next = commands.take();
            } catch (InterruptedException e) {
                continue; /* An interrupt that came too late for the command it was meant for. */
            }
            next.run();
        }
    }

    void submit(Runnable command) {
        commands.add(command);
    }

    void interrupt() {
        thread.interrupt();
    }

    /** Whether it waits for a message: in the semaphore in which Redisson's locks do. */
    boolean isAsleep() {
        Thread.State state = thread.getState();
        if (state != Thread.State.WAITING && state != Thread.State.TIMED_WAITING) {
            return false;
        }
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals("java.util.concurrent.Semaphore")) {
                return true;
            }
        }
        return false;
    }
}
