-- The tables of schedulers, in the schema that the store's URL names. Times are milliseconds since 1970.
-- Text is escaped where it has a NUL, which PostgreSQL can't store: ESC 0 stands for NUL, ESC 1 for ESC.

CREATE TABLE IF NOT EXISTS schedule_version (
    version int NOT NULL
);

-- Tells this store from others, by whatever name its host is reached.
CREATE TABLE IF NOT EXISTS schedule_identity (
    identity uuid NOT NULL
);

-- Who may write a shard (seat, member, epoch), and where its owner goes on.
CREATE TABLE IF NOT EXISTS schedule_shards (
    scheduler text COLLATE "C" NOT NULL,
    shard     int              NOT NULL,
    seat      text             NOT NULL,
    member    text             NOT NULL,
    epoch     bigint           NOT NULL,
    position  bigint           NOT NULL DEFAULT 0,
    mark      bigint,
    sent      bigint           NOT NULL DEFAULT 0,  -- records put into the outbox in this epoch
    PRIMARY KEY (scheduler, shard)
);

CREATE TABLE IF NOT EXISTS schedule_events (
    scheduler text COLLATE "C" NOT NULL,
    shard     int              NOT NULL,
    key       bytea            NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    id        text             NOT NULL,
    event_id  text             NOT NULL,
    at        bigint           NOT NULL,
    due       bigint           NOT NULL,
    status    smallint         NOT NULL,  -- 0 waiting, 1 firing, 2 retry, 3 done, 4 failed
    payload   bytea,
    form      smallint         NOT NULL,  -- 0 text, 1 JSON, 2 bytes
    option    smallint         NOT NULL,  -- 0 full event, 1 payload only
    lapsed    boolean          NOT NULL,
    accepted  bigint           NOT NULL,
    attempt   int              NOT NULL,
    triggered bigint,
    ended     bigint,
    error     text,
    epoch     bigint           NOT NULL,
    tick      boolean          NOT NULL,
    place     bigint           NOT NULL   -- its time in lists: when the keep time began if it has ended, else when due
) WITH (fillfactor = 80);

CREATE INDEX IF NOT EXISTS schedule_events_due ON schedule_events (scheduler, shard, tenant, due, key)
    WHERE status IN (0, 2);
CREATE INDEX IF NOT EXISTS schedule_events_firing ON schedule_events (scheduler, shard, key) WHERE status = 1;
CREATE INDEX IF NOT EXISTS schedule_events_place ON schedule_events (scheduler, shard, place, key);
-- The last of them: before a table is analyzed, several seem equally good to look up a key, and then the last one wins.
CREATE UNIQUE INDEX IF NOT EXISTS schedule_events_key ON schedule_events (scheduler, shard, key);

CREATE TABLE IF NOT EXISTS schedule_crons (
    scheduler text COLLATE "C" NOT NULL,
    shard     int              NOT NULL,
    key       bytea            NOT NULL,
    cron      json             NOT NULL,
    PRIMARY KEY (scheduler, shard, key)
);

CREATE TABLE IF NOT EXISTS schedule_runs (
    scheduler text COLLATE "C" NOT NULL,
    shard     int              NOT NULL,
    key       bytea            NOT NULL,  -- digest of the cron's name
    at        bigint           NOT NULL,
    bucket    bigint           NOT NULL,
    cron      text             NOT NULL,
    event     bytea            NOT NULL,
    expires   bigint,
    PRIMARY KEY (scheduler, shard, key, at, bucket)
);

CREATE INDEX IF NOT EXISTS schedule_runs_expires ON schedule_runs (scheduler, shard, expires)
    WHERE expires IS NOT NULL;

-- Batches that were committed with their rows and are not known to be on the bus.
CREATE TABLE IF NOT EXISTS schedule_outbox (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scheduler text COLLATE "C" NOT NULL,
    shard     int              NOT NULL,
    log       text             NOT NULL,
    batch     bytea            NOT NULL
);

-- A batch is there for a moment, and is compressed already if its stream is.
ALTER TABLE schedule_outbox ALTER COLUMN batch SET STORAGE EXTERNAL;

CREATE INDEX IF NOT EXISTS schedule_outbox_order ON schedule_outbox (scheduler, shard, id);

INSERT INTO schedule_identity SELECT gen_random_uuid() WHERE NOT EXISTS (SELECT FROM schedule_identity);
INSERT INTO schedule_version SELECT 1 WHERE NOT EXISTS (SELECT FROM schedule_version);
