package holdfast.actor.redisson;

import holdfast.actor.Request;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;
import org.redisson.config.SubscriptionMode;
import org.redisson.config.TransportMode;

/** Makes Redisson clients from a url and the options of a {@code client} command. */
final class Clients {
    private Clients() {
    }

    /* Older versions have no such option, and take five minutes. */
    private static void setFairWait(Config config, long ms) {
        try {
            config.setFairLockWaitTimeout(ms);
        } catch (NoSuchMethodError e) {
            System.err.println("fairwait is not known to this version");
        }
    }

    /**
     * Its connections have the name at the server. {@code unix:///path} is put into Redisson's
     * spelling. {@code redis-sentinel://host:port,.../NAME} and {@code redis-cluster://host:port,...}
     * are what they are for holdfast; other urls are Redisson's already.
     */
    static RedissonClient open(String name, String url, Request request) {
        Config config = new Config();
        /* The defaults, 16 and 32 threads, are for a server; several clients share this JVM. */
        config.setThreads((int) request.number("threads", 2));
        config.setNettyThreads((int) request.number("netty", 2));
        config.setLockWatchdogTimeout(request.number("watchdog", config.getLockWatchdogTimeout()));
        if (request.has("codec")) {
            config.setCodec(StringCodec.INSTANCE); /* the only one that is asked for */
        }
        if (request.has("fairwait")) {
            setFairWait(config, request.number("fairwait"));
        }
        useServers(config, url, request).setClientName(name);
        return Redisson.create(config);
    }

    private static BaseConfig<?> useServers(Config config, String url, Request request) {
        BaseConfig<?> servers;
        if (url.startsWith("redis-sentinel://")) {
            servers = useSentinels(config, url);
        } else if (url.startsWith("redis-cluster://")) {
            servers = useCluster(config, url, request);
        } else {
            servers = useOne(config, url, request);
        }
        servers.setTimeout((int) request.number("timeout", servers.getTimeout()));
        servers.setRetryAttempts((int) request.number("retries", servers.getRetryAttempts()));
        return servers;
    }

    private static SingleServerConfig useOne(Config config, String url, Request request) {
        String address = url;
        if (url.startsWith("unix://")) {
            address = "redis+uds://" + url.substring("unix://".length());
            config.setTransportMode(TransportMode.EPOLL);
        }
        SingleServerConfig server = config.useSingleServer().setAddress(address);
        server.setConnectionMinimumIdleSize(1);
        return server.setConnectionPoolSize((int) request.number("pool", 16));
    }

    /** The addresses and, behind a slash, the name. */
    private static String[] partsOf(String url) {
        return url.substring(url.indexOf("://") + 3).split("/", 2);
    }

    private static SentinelServersConfig useSentinels(Config config, String url) {
        String[] parts = partsOf(url);
        SentinelServersConfig sentinels = config.useSentinelServers().setMasterName(parts[1]);
        for (String address : parts[0].split(",")) {
            sentinels.addSentinelAddress("redis://" + address);
        }
        return onlyPrimaries(sentinels);
    }

    private static ClusterServersConfig useCluster(Config config, String url, Request request) {
        ClusterServersConfig cluster = config.useClusterServers();
        cluster.setScanInterval((int) request.number("scan", cluster.getScanInterval()));
        for (String address : partsOf(url)[0].split(",")) {
            cluster.addNodeAddress("redis://" + address);
        }
        return onlyPrimaries(cluster);
    }

    private static <T extends BaseMasterSlaveServersConfig<T>> T onlyPrimaries(T servers) {
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setMasterConnectionPoolSize(16);
        servers.setSubscriptionConnectionMinimumIdleSize(1);
        servers.setSubscriptionMode(SubscriptionMode.MASTER);
        return servers.setReadMode(ReadMode.MASTER);
    }
}
