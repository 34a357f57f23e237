package peers;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Collects the raw events of each key until its end event, and then emits the session's outputs.
 *
 * <p>A {@link ListState} is appended to without being read: a list's add on the heap, a merge in RocksDB. It is read and cleared once,
 * at the end. There are no timers: a session without an end stays.
 */
final class SessionAssembler extends KeyedProcessFunction<String, Event, Output> {
    private static final long serialVersionUID = 1L;

    private transient ListState<byte[]> open;

    @Override
    public void open(OpenContext context) {
        open = getRuntimeContext()
                .getListState(new ListStateDescriptor<>("open", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
    }

    @Override
    public void processElement(Event event, Context context, Collector<Output> outputs) throws Exception {
        if (!event.isEnd) {
            open.add(event.json);
            return;
        }
        // What a transform gets is the session's events: they are read, though this transform needs none of them.
        int events = 1;
        for (byte[] ignored : open.get()) {
            events++;
        }
        open.clear();
        if (events == 1) {
            return; // an end without a session
        }
        for (int number = 0; number < Twenty.OUTPUTS; number++) {
            outputs.collect(new Output(event.key, Twenty.output(event.timestampMs, number)));
        }
    }
}
