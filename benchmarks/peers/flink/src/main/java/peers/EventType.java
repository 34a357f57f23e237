package peers;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** What an event is to its session, as the field {@code event_type} of its JSON says. */
enum EventType {
    START,
    ENTRY,
    END,
    /** Not one JSON object, no {@code event_type}, or one that is not known. */
    MALFORMED;

    private static final JsonFactory JSON = new JsonFactory();

    /**
     * Reads the whole document once with Jackson's streaming parser, so that what is not JSON is noticed wherever it is broken; builds
     * no tree, and decodes no string but the top level's names and the type.
     */
    static EventType of(byte[] json) {
        try (JsonParser parser = JSON.createParser(json)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                return MALFORMED;
            }
            EventType type = MALFORMED;
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                JsonToken value = parser.nextToken();
                if (name.equals("event_type")) {
                    type = value == JsonToken.VALUE_STRING ? named(parser.getText()) : MALFORMED;
                } else {
                    parser.skipChildren();
                }
            }
            return parser.currentToken() == JsonToken.END_OBJECT && parser.nextToken() == null ? type : MALFORMED;
        } catch (IOException notJson) {
            return MALFORMED;
        }
    }

    private static EventType named(String text) {
        return switch (text) {
            case "start_event" -> START;
            case "entry_event" -> ENTRY;
            case "end_event" -> END;
            default -> MALFORMED;
        };
    }
}
