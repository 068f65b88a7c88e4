package holdfast.interop;

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

    /* Older versions cannot be told, and take five minutes. */
    private static void setFairWait(Config config, long ms) {
        try {
            config.setFairLockWaitTimeout(ms);
        } catch (NoSuchMethodError e) {
            System.err.println("fairwait is not known to this version");
        }
    }

    private static final String CLUSTER = "redis-cluster://";
    private static final String SENTINEL = "redis-sentinel://";

    private static String[] addresses(String hosts) {
        String[] addresses = hosts.split(",");
        for (int i = 0; i < addresses.length; i++) {
            addresses[i] = "redis://" + addresses[i];
        }
        return addresses;
    }

    /* The defaults are pools for a server, and replicas that are read from. */
    private static void beSmall(BaseMasterSlaveServersConfig<?> servers, Request request) {
        servers.setReadMode(ReadMode.MASTER);
        servers.setSubscriptionMode(SubscriptionMode.MASTER);
        servers.setMasterConnectionMinimumIdleSize(1);
        servers.setMasterConnectionPoolSize((int) request.number("pool", 16));
        servers.setSubscriptionConnectionMinimumIdleSize(1);
    }

    private static BaseConfig<?> useCluster(Config config, String hosts, Request request) {
        ClusterServersConfig servers = config.useClusterServers();
        servers.addNodeAddress(addresses(hosts));
        servers.setScanInterval((int) request.number("scan", 1000));
        beSmall(servers, request);
        return servers;
    }

    /* HOST,.../NAME */
    private static BaseConfig<?> useSentinel(Config config, String hosts, Request request) {
        int slash = hosts.indexOf('/');
        SentinelServersConfig servers = config.useSentinelServers();
        servers.setMasterName(hosts.substring(slash + 1));
        servers.addSentinelAddress(addresses(hosts.substring(0, slash)));
        servers.setScanInterval((int) request.number("scan", 1000));
        servers.setCheckSentinelsList(false);
        beSmall(servers, request);
        return servers;
    }

    private static BaseConfig<?> useSingle(Config config, String url, Request request) {
        String address = url;
        if (url.startsWith("unix://")) {
            address = "redis+uds://" + url.substring("unix://".length());
            config.setTransportMode(TransportMode.EPOLL);
        }
        SingleServerConfig server = config.useSingleServer().setAddress(address);
        server.setConnectionMinimumIdleSize(1);
        server.setConnectionPoolSize((int) request.number("pool", 16));
        return server;
    }

    private static BaseConfig<?> use(Config config, String url, Request request) {
        if (url.startsWith(CLUSTER)) {
            return useCluster(config, url.substring(CLUSTER.length()), request);
        }
        if (url.startsWith(SENTINEL)) {
            return useSentinel(config, url.substring(SENTINEL.length()), request);
        }
        return useSingle(config, url, request);
    }

    /**
     * Its connections have the name at the server. Urls are holdfast's; those that Redisson spells
     * otherwise, or not at all, are put into its words.
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

        BaseConfig<?> server = use(config, url, request);
        server.setClientName(name);
        server.setTimeout((int) request.number("timeout", server.getTimeout()));
        server.setRetryAttempts((int) request.number("retries", server.getRetryAttempts()));
        return Redisson.create(config);
    }
}
