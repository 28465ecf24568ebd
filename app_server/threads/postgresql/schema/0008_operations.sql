-- Requests that clients named, so that they can be sent again; docs/sending_again.md, "Ledger".

CREATE TABLE operations (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    method text COLLATE "C" NOT NULL,
    digest text NOT NULL,
    at_ms bigint NOT NULL,
    holder text COLLATE "C" NOT NULL,
    is_done boolean NOT NULL DEFAULT false,
    answer text,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX operations_by_number ON operations (tenant, number);
CREATE INDEX operations_by_time ON operations (tenant, at_ms);
ALTER TABLE operations ENABLE ROW LEVEL SECURITY;
ALTER TABLE operations FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON operations USING (tenant = (SELECT current_tenant()));
