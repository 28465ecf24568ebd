-- Wakes of threads; docs/wakes.md.

CREATE TABLE wakes (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    source text NOT NULL,
    note text NOT NULL,
    mode text NOT NULL,
    state text COLLATE "C" NOT NULL,
    set_at_ms bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    fires integer NOT NULL,
    at_ms bigint,
    every_ms bigint,
    look_at_ms bigint,
    text text NOT NULL,
    place text NOT NULL,
    seen text NOT NULL,
    error_code text,
    error_message text,
    UNIQUE (tenant, id)
);
CREATE INDEX wakes_by_thread ON wakes (tenant, thread_id, number);
CREATE INDEX wakes_by_time ON wakes (tenant, look_at_ms) WHERE look_at_ms IS NOT NULL;
CREATE INDEX wakes_waiting ON wakes (tenant, kind) WHERE state = 'armed' AND kind <> 'timer';

ALTER TABLE wakes ENABLE ROW LEVEL SECURITY;
ALTER TABLE wakes FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON wakes USING (tenant = (SELECT current_tenant()));
