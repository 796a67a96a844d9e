import com.cronutils.descriptor.CronDescriptor;
import com.cronutils.model.Cron;
import com.cronutils.model.CronType;
import com.cronutils.model.definition.CronDefinitionBuilder;
import com.cronutils.model.time.ExecutionTime;
import com.cronutils.parser.CronParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.Optional;

/**
 * Answers what cron-utils says of an expression: one request a line, one JSON object a line.
 *
 * A request is "calls TAB dialect TAB instants TAB expression": calls are letters (d describe, n next, p previous,
 * m match, f next after half a second, in milliseconds), instants are seconds since 1970 with commas, the expression is written with four hex digits a character.
 * A call that takes too long ends the process, after {"hangs": call}; the caller starts it again.
 * Janino runs this file, so it is plain Java 7.
 */
public class CronOracle {
    private static final int NEXT = 5;
    private static final int PREVIOUS = 2;
    private static volatile String call = "";
    private static volatile long began = Long.MAX_VALUE;
    private static PrintStream out;

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, true, "UTF-8");
        watch(Long.parseLong(arguments[0]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer = answer(line.split("\t", -1));
            began = Long.MAX_VALUE;
            out.println(answer);
        }
    }

    private static void watch(final long limitMs) {
        Thread thread = new Thread(new Runnable() {
            public void run() {
                while (true) {
                    try {
                        Thread.sleep(20);
                    } catch (InterruptedException e) {
                        return;
                    }
                    if (System.currentTimeMillis() - began > limitMs) {
                        out.println("{\"hangs\": " + text(call) + "}");
                        Runtime.getRuntime().halt(3);
                    }
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void begin(String name) {
        call = name;
        began = System.currentTimeMillis();
    }

    private static String answer(String[] request) {
        Cron cron;
        ExecutionTime times;
        begin("parse");
        try {
            CronType type = CronType.valueOf(request[1]);
            cron = new CronParser(CronDefinitionBuilder.instanceDefinitionFor(type)).parse(characters(request[3]));
        } catch (Throwable error) {
            return "{\"refused\": " + text(root(error)) + ", \"kind\": " + text(kind(error)) + "}";
        }
        StringBuilder json = new StringBuilder("{\"text\": " + text(asString(cron)));
        if (request[0].contains("d")) {
            begin("d");
            json.append(", \"d\": ").append(describe(cron));
        }
        begin("times");
        try {
            // By reflection: Janino calls no static methods of interfaces.
            times = (ExecutionTime) ExecutionTime.class.getMethod("forCron", new Class[] {Cron.class}).invoke(null, cron);
        } catch (Throwable error) {
            return json.append(", \"times\": ").append(failure(error)).append("}").toString();
        }
        String[] instants = request[2].split(",");
        for (int i = 0; i < 4; i++) {
            String name = "npmf".substring(i, i + 1);
            if (!request[0].contains(name)) {
                continue;
            }
            json.append(", \"").append(name).append("\": [");
            for (int j = 0; j < instants.length; j++) {
                json.append(j == 0 ? "" : ", ").append(at(name, times, Long.parseLong(instants[j])));
            }
            json.append("]");
        }
        return json.append("}").toString();
    }

    private static String at(String name, ExecutionTime times, long second) {
        ZonedDateTime instant = ZonedDateTime.ofInstant(Instant.ofEpochSecond(second), ZoneOffset.UTC);
        if (name.equals("m")) {
            begin("m");
            try {
                return String.valueOf(times.isMatch(instant));
            } catch (Throwable error) {
                return failure(error);
            }
        }
        if (name.equals("f")) {
            begin("f");
            Optional found = times.nextExecution(instant.plusNanos(500000000L));
            return String.valueOf(((ZonedDateTime) found.get()).toInstant().toEpochMilli());
        }
        return chain(name, times, instant);
    }

    private static String chain(String name, ExecutionTime times, ZonedDateTime instant) {
        int count = name.equals("n") ? NEXT : PREVIOUS;
        StringBuilder json = new StringBuilder("[");
        for (int i = 0; i < count; i++) {
            begin(name);
            Optional found;
            try {
                found = name.equals("n") ? times.nextExecution(instant) : times.lastExecution(instant);
            } catch (Throwable error) {
                return json.append(i == 0 ? "" : ", ").append(failure(error)).append("]").toString();
            }
            if (!found.isPresent()) {
                return json.append(i == 0 ? "" : ", ").append("null]").toString();
            }
            // Without its fraction: stepping back over a month leaves 999999999 nanoseconds in the original.
            instant = ((ZonedDateTime) found.get()).withNano(0);
            json.append(i == 0 ? "" : ", ").append(instant.toEpochSecond());
        }
        return json.append("]").toString();
    }

    private static String describe(Cron cron) {
        try {
            return text(CronDescriptor.instance().describe(cron));
        } catch (Throwable error) {
            return failure(error);
        }
    }

    private static String asString(Cron cron) {
        try {
            return cron.asString();
        } catch (Throwable error) {
            return kind(error);
        }
    }

    private static String failure(Throwable error) {
        return "{\"fails\": " + text(root(error)) + ", \"kind\": " + text(kind(error)) + "}";
    }

    private static String root(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return String.valueOf(error.getMessage());
    }

    private static String kind(Throwable error) {
        while (error.getCause() != null) {
            error = error.getCause();
        }
        return error.getClass().getSimpleName();
    }

    private static String characters(String hex) {
        StringBuilder found = new StringBuilder();
        for (int i = 0; i < hex.length(); i += 4) {
            found.append((char) Integer.parseInt(hex.substring(i, i + 4), 16));
        }
        return found.toString();
    }

    private static String text(String value) {
        StringBuilder json = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char each = value.charAt(i);
            if (each >= 32 && each < 127 && each != '"' && each != '\\') {
                json.append(each);
            } else {
                json.append(String.format("\\u%04x", new Object[] {Integer.valueOf(each)}));
            }
        }
        return json.append("\"").toString();
    }
}
