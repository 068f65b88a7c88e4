package holdfast.peers;

/** One lock of a library. */
interface Peer {
    boolean tryOnce() throws Exception;

    /** Waits as the library does; up to a minute. */
    boolean take() throws Exception;

    /** False: the library says that the lock was lost. */
    boolean extend() throws Exception;

    boolean release() throws Exception;
}
