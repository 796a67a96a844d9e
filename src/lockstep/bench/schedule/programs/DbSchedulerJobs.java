import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Tasks run by db-scheduler: java DbSchedulerJobs URL EVENTS OVER_MS SETTING NODE.
 *
 * <p>Node 0 creates the table and the tasks, all due at once or one after the other over a time; every node runs its
 * share and prints one line of JSON. SETTING is "tuned" (lock-and-fetch, many threads, a short poll) or "default".
 */
public final class DbSchedulerJobs {
    private static final String TABLE =
        "CREATE TABLE IF NOT EXISTS scheduled_tasks (task_name text NOT NULL, task_instance text NOT NULL, task_data bytea,"
            + " execution_time timestamptz NOT NULL, picked boolean NOT NULL, picked_by text, last_success timestamptz,"
            + " last_failure timestamptz, consecutive_failures int, last_heartbeat timestamptz,"
            + " version bigint NOT NULL, priority smallint, PRIMARY KEY (task_name, task_instance));"
            + " CREATE INDEX IF NOT EXISTS execution_time_idx ON scheduled_tasks (execution_time);"
            + " CREATE INDEX IF NOT EXISTS last_heartbeat_idx ON scheduled_tasks (last_heartbeat)";
    private static final String FILL =
        "INSERT INTO scheduled_tasks (task_name, task_instance, execution_time, picked, consecutive_failures, version)"
            + " SELECT 'count', number::text, to_timestamp((? + number * ?::double precision / ?) / 1000.0), false, 0, 1"
            + " FROM generate_series(0, ? - 1) AS number";
    private static final long WAIT_MS = 600_000;
    private static final long IDLE_MS = 12_000;

    private DbSchedulerJobs() {}

    public static void main(String[] arguments) throws Exception {
        final String url = arguments[0];
        final int events = Integer.parseInt(arguments[1]);
        final long overMs = Long.parseLong(arguments[2]);
        final boolean tuned = arguments[3].equals("tuned");
        final int node = Integer.parseInt(arguments[4]);
        final long beginMs = Long.parseLong(arguments[5]);
        final int nodes = Integer.parseInt(arguments[6]);

        final HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setMaximumPoolSize(tuned ? 12 : 10);
        final HikariDataSource source = new HikariDataSource(config);
        if (node == 0) {
            fill(source, events, overMs, beginMs);
        }

        final AtomicIntegerArray ran = new AtomicIntegerArray(events);
        final long[] late = new long[events];
        final AtomicInteger done = new AtomicInteger();
        final AtomicLong lastMs = new AtomicLong();
        final OneTimeTask<Void> task = Tasks.oneTime("count").execute((instance, context) -> {
            final int number = Integer.parseInt(instance.getId());
            final long now = System.currentTimeMillis();
            late[number] = now - context.getExecution().executionTime.toEpochMilli();
            ran.incrementAndGet(number);
            lastMs.accumulateAndGet(now, Math::max);
            done.incrementAndGet();
        });
        var builder = Scheduler.create(source, task).schedulerName(
            new com.github.kagkarlsson.scheduler.SchedulerName.Fixed("node-" + node));
        if (tuned) {
            builder = builder.threads(50).pollUsingLockAndFetch(4.0, 20.0).pollingInterval(Duration.ofMillis(100));
        }
        final Scheduler scheduler = builder.build();
        Thread.sleep(Math.max(beginMs - System.currentTimeMillis() - (nodes > 1 || overMs > 0 ? 3000 : 0), 0));
        final long startMs = System.currentTimeMillis();
        scheduler.start();
        long changedMs = Math.max(startMs, beginMs);
        int before = 0;
        while (System.currentTimeMillis() < startMs + WAIT_MS + overMs) {
            Thread.sleep(20);
            final int now = done.get();
            if (now != before) {
                before = now;
                changedMs = System.currentTimeMillis();
            }
            if (now >= events || (nodes > 1 && System.currentTimeMillis() > changedMs + IDLE_MS)) {
                break;
            }
        }
        scheduler.stop();
        tell(events, ran, late, Math.max(startMs, beginMs), lastMs.get(), nodes);
        System.exit(0);
    }

    private static void fill(HikariDataSource source, int events, long overMs, long beginMs) throws Exception {
        try (Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS scheduled_tasks");
            statement.execute(TABLE);
            try (PreparedStatement insert = connection.prepareStatement(FILL)) {
                insert.setLong(1, beginMs);
                insert.setLong(2, overMs);
                insert.setInt(3, events);
                insert.setInt(4, events);
                insert.executeUpdate();
            }
            statement.execute("ANALYZE scheduled_tasks");
        }
    }

    private static void tell(int events, AtomicIntegerArray ran, long[] late, long fromMs, long lastMs, int nodes) {
        int distinct = 0;
        int copies = 0;
        final long[] found = new long[events];
        for (int number = 0; number < events; number++) {
            final int times = ran.get(number);
            if (times > 0) {
                found[distinct++] = late[number];
                copies += times - 1;
            }
        }
        Arrays.sort(found, 0, distinct);
        final double seconds = Math.max(lastMs - fromMs, 1) / 1000.0;
        System.out.printf(
            java.util.Locale.ROOT,
            "{\"events\": %d, \"ran\": %d, \"seconds\": %.3f, \"per_s\": %.1f, \"lost\": %d, \"duplicated\": %d,"
                + " \"early\": %d, \"late_ms\": {\"p50\": %d, \"p99\": %d, \"max\": %d}}%n",
            events, distinct, seconds, distinct / seconds, nodes > 1 ? 0 : events - distinct, copies,
            distinct > 0 && found[0] < 0 ? 1 : 0, at(found, distinct, 0.5), at(found, distinct, 0.99),
            at(found, distinct, 1.0));
    }

    private static long at(long[] sorted, int size, double part) {
        return size == 0 ? 0 : sorted[Math.max((int) Math.ceil(size * part) - 1, 0)];
    }
}
