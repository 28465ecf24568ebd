-- Environments that clients added, for all servers; docs/environments.md, "Several servers".

CREATE TABLE environments (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    url text NOT NULL,
    request_id text,
    connect_ms bigint,
    PRIMARY KEY (tenant, id)
);
ALTER TABLE environments ENABLE ROW LEVEL SECURITY;
ALTER TABLE environments FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON environments USING (tenant = (SELECT current_tenant()));
