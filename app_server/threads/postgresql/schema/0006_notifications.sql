-- The outbox of notifications; docs/notifications.md, "Outbox".

CREATE TABLE notifications (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    label text NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    event text NOT NULL,
    subject text COLLATE "C" NOT NULL,
    body text NOT NULL,
    run text COLLATE "C" NOT NULL,
    created_at_ms bigint NOT NULL,
    is_open boolean NOT NULL,
    state text COLLATE "C" NOT NULL,
    attempts integer NOT NULL,
    next_at_ms bigint NOT NULL,
    ended_at_ms bigint,
    error text,
    holder text COLLATE "C",
    claimed_until_ms bigint NOT NULL,
    UNIQUE (tenant, target, id)
);
CREATE INDEX notifications_waiting ON notifications (tenant, target, thread_id, number)
    WHERE state = 'waiting';
CREATE INDEX notifications_ended ON notifications (tenant, state, number) WHERE state <> 'waiting';
CREATE INDEX notifications_open ON notifications (tenant, thread_id, subject) WHERE is_open;

CREATE TABLE notification_targets_disabled (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    target text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (tenant, target)
);

-- Up to when the events of each run of a server are in the outbox.
CREATE TABLE notification_runs (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    at_ms bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

DO $$
DECLARE kept text;
BEGIN
    FOREACH kept IN ARRAY ARRAY[
        'notifications', 'notification_targets_disabled', 'notification_runs'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', kept);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', kept);
        EXECUTE format(
            'CREATE POLICY of_tenant ON %I USING (tenant = (SELECT current_tenant()))', kept
        );
    END LOOP;
END $$;
