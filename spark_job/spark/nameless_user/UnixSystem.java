package com.sun.security.auth.module;

/** In the place of the JDK's, which gives no name for a user whom the system does not know: Hadoop's login then fails. */
public class UnixSystem {
    public String getUsername() { return System.getProperty("user.name"); }
    public long getUid() { return Long.getLong("outbox.uid"); }
    public long getGid() { return Long.getLong("outbox.gid"); }
    public long[] getGroups() { return new long[0]; }
}
