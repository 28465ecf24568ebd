-- What is used and reserved of budgets that threads share; docs/usage.md, "Budgets of a home".

CREATE TABLE spending (
    tenant integer NOT NULL DEFAULT current_tenant() REFERENCES tenants,
    scope text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    unit text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY (tenant, scope, name, unit, request_id)
);
CREATE INDEX spending_by_request ON spending (tenant, request_id) WHERE request_id <> '';
ALTER TABLE spending ENABLE ROW LEVEL SECURITY;
ALTER TABLE spending FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON spending USING (tenant = (SELECT current_tenant()));
