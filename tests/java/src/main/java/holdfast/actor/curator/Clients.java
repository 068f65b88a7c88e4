package holdfast.actor.curator;

import holdfast.actor.Request;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Makes Curator clients from {@code zk://host:port,...}; {@code session=ms} is the session timeout that they ask for. */
final class Clients {
    private Clients() {
    }

    static CuratorFramework open(String url, Request request) throws InterruptedException {
        String hosts = url.substring("zk://".length());
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
