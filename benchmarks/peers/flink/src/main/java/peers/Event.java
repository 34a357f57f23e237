package peers;

/** One input record of a session; a POJO as Flink's serializer wants it. */
public final class Event {
    public String key;
    public boolean isEnd;
    public long timestampMs;
    public byte[] json;

    public Event() {}

    Event(String key, boolean isEnd, long timestampMs, byte[] json) {
        this.key = key;
        this.isEnd = isEnd;
        this.timestampMs = timestampMs;
        this.json = json;
    }
}
