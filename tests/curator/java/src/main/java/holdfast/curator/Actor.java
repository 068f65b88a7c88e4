package holdfast.curator;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** One logical actor: a Java thread that stays, as Curator's locks belong to threads. Its commands run one by one. */
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
            try {
                commands.take().run();
            } catch (InterruptedException e) {
                continue; /* It came too late for the command it was meant for. */
            }
        }
    }

    void submit(Runnable command) {
        commands.add(command);
    }

    void interrupt() {
        thread.interrupt();
    }
}
