-- Threads, their records, what is derived of them, signals, projects and sections.
-- docs/scale.md, "Tables", says what each is for.

CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE tenants (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role name NOT NULL UNIQUE
);

CREATE FUNCTION current_tenant() RETURNS integer
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT id FROM tenants WHERE role = current_user $$;

CREATE TABLE nodes (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id uuid NOT NULL,
    lock integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at bigint NOT NULL,
    address text,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE threads (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id uuid NOT NULL,
    owner uuid,
    epoch integer NOT NULL DEFAULT 0,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    recency_at_ms bigint NOT NULL,
    name text COLLATE "C",
    preview text COLLATE "C" NOT NULL,
    archived boolean NOT NULL,
    has_content boolean NOT NULL,
    model text COLLATE "C" NOT NULL,
    model_provider text COLLATE "C" NOT NULL,
    effort text COLLATE "C",
    cwd text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    source_kind text COLLATE "C" NOT NULL,
    originator text COLLATE "C",
    cli_version text COLLATE "C" NOT NULL,
    thread_source text COLLATE "C",
    parent_id text COLLATE "C",
    project_id text COLLATE "C",
    section_id text COLLATE "C",
    section_rank text COLLATE "C",
    section_entered_at_ms bigint,
    git_info text COLLATE "C",
    read_state text COLLATE "C",
    attachments text COLLATE "C" NOT NULL,
    daybreak_enabled boolean,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX threads_by_created ON threads (tenant, archived, has_content, created_at_ms, id);
CREATE INDEX threads_by_updated ON threads (tenant, archived, has_content, updated_at_ms, id);
CREATE INDEX threads_by_recency ON threads (tenant, archived, has_content, recency_at_ms, id);
CREATE INDEX threads_by_section ON threads (tenant, section_id, section_rank, id)
    WHERE section_id IS NOT NULL;
CREATE INDEX threads_by_project ON threads (tenant, project_id, recency_at_ms)
    WHERE project_id IS NOT NULL;
CREATE INDEX threads_by_parent ON threads (tenant, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX threads_by_attachments ON threads (tenant, id) WHERE attachments <> '[]';
CREATE INDEX threads_by_owner ON threads (tenant, owner) WHERE owner IS NOT NULL;

-- One row an append; `position` counts the bytes of the log before it.
CREATE TABLE records (
    tenant integer NOT NULL DEFAULT current_tenant(),
    thread_id uuid NOT NULL,
    position bigint NOT NULL,
    epoch integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, thread_id, position)
) PARTITION BY HASH (thread_id);
DO $$ BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE records_%s PARTITION OF records FOR VALUES WITH (MODULUS 16, REMAINDER %s)',
            part, part
        );
    END LOOP;
END $$;

-- How far the turns and texts of a log are known, and the state to go on from there.
CREATE TABLE outlines (
    tenant integer NOT NULL DEFAULT current_tenant(),
    thread_id uuid NOT NULL,
    seen bigint NOT NULL,
    at_ms bigint NOT NULL,
    started integer NOT NULL,
    waiting text NOT NULL,
    PRIMARY KEY (tenant, thread_id)
);

CREATE TABLE turns (
    tenant integer NOT NULL DEFAULT current_tenant(),
    thread_id uuid NOT NULL,
    number integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    started_at_ms bigint NOT NULL,
    status text NOT NULL,
    error text,
    completed_at_ms bigint,
    duration_ms bigint,
    packed bytea NOT NULL,
    PRIMARY KEY (tenant, thread_id, number)
);
CREATE INDEX turns_by_id ON turns (tenant, thread_id, id);

CREATE TABLE texts (
    tenant integer NOT NULL DEFAULT current_tenant(),
    thread_id uuid NOT NULL,
    page integer NOT NULL,
    text text COLLATE "C" NOT NULL,
    folded text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, thread_id, page)
);
CREATE INDEX texts_by_words ON texts USING gin (folded gin_trgm_ops);

-- What lists are searched for: a copy of two columns of `threads`.
CREATE TABLE named (
    tenant integer NOT NULL,
    thread_id uuid NOT NULL,
    name text COLLATE "C",
    preview text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, thread_id),
    FOREIGN KEY (tenant, thread_id) REFERENCES threads ON DELETE CASCADE
);
CREATE INDEX named_by_words ON named USING gin (lower(name) gin_trgm_ops, lower(preview) gin_trgm_ops);

CREATE FUNCTION copy_named() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO named VALUES (NEW.tenant, NEW.id, NEW.name, NEW.preview)
    ON CONFLICT (tenant, thread_id) DO UPDATE SET name = excluded.name, preview = excluded.preview;
    RETURN NULL;
END $$;
CREATE TRIGGER named_begun AFTER INSERT ON threads
    FOR EACH ROW EXECUTE FUNCTION copy_named();
CREATE TRIGGER named_changed AFTER UPDATE ON threads FOR EACH ROW
    WHEN (OLD.name IS DISTINCT FROM NEW.name OR OLD.preview <> NEW.preview)
    EXECUTE FUNCTION copy_named();

-- Row-level security keeps LIKE from indexes, as it could leak rows of others. These look as the
-- owner of the tables, who is exempt in `named` and `texts`, at the rows of the role that asks.
CREATE FUNCTION asking_tenant() RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT id FROM tenants WHERE role = CASE current_setting('role')
        WHEN 'none' THEN session_user ELSE current_setting('role')::name END
$$;
CREATE FUNCTION found_names(pattern text, most integer) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    -- Planned for this pattern.
    RETURN QUERY EXECUTE 'SELECT thread_id FROM named WHERE tenant = $1
        AND (lower(name) LIKE $2 OR lower(preview) LIKE $2) LIMIT $3'
        USING asking_tenant(), pattern, most;
END $$;
CREATE FUNCTION found_texts(pattern text, most integer) RETURNS SETOF uuid
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$ BEGIN
    RETURN QUERY EXECUTE 'SELECT thread_id FROM texts WHERE tenant = $1 AND folded LIKE $2 LIMIT $3'
        USING asking_tenant(), pattern, most;
END $$;

CREATE TABLE signals (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    digest text NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    sender text NOT NULL,
    item text NOT NULL,
    wakes boolean NOT NULL,
    steers boolean NOT NULL,
    stage text COLLATE "C" NOT NULL,
    recipient_state text NOT NULL,
    at_ms bigint NOT NULL,
    item_id text NOT NULL,
    expires_at_ms bigint,
    turn_id text,
    woken_at_ms bigint,
    error_code text,
    error_message text,
    UNIQUE (tenant, source, id)
);
CREATE INDEX signals_by_thread ON signals (tenant, thread_id, number);
CREATE INDEX signals_by_woken ON signals (tenant, thread_id, source, woken_at_ms)
    WHERE woken_at_ms IS NOT NULL;
CREATE INDEX signals_by_stage ON signals (tenant, stage, number);

-- One row, changed with every write of signals: other servers see by it that there is news.
CREATE TABLE ledgers (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants PRIMARY KEY,
    version bigint NOT NULL
);

-- The log of projects and sections.
CREATE TABLE filing (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    position bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, position)
);

DO $$
DECLARE kept text;
BEGIN
    FOREACH kept IN ARRAY ARRAY[
        'nodes', 'threads', 'records', 'outlines', 'turns', 'texts', 'named', 'signals', 'ledgers',
        'filing'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', kept);
        IF kept NOT IN ('texts', 'named') THEN
            EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', kept);
        END IF;
        EXECUTE format(
            'CREATE POLICY of_tenant ON %I USING (tenant = (SELECT current_tenant()))', kept
        );
    END LOOP;
END $$;
