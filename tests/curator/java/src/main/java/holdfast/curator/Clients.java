package holdfast.curator;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Makes Curator clients: {@code session=ms} is the timeout of the session that is asked for. */
final class Clients {
    private Clients() {
    }

    static CuratorFramework open(String hosts, Request request) throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts,
                (int) request.number("session", 10000), 10000, new ExponentialBackoffRetry(100, 10));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            client.close();
            throw new IllegalStateException("not connected");
        }
        return client;
    }
}
