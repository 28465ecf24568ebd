-- Leases of nodes, and threads that do not wait until they are asked for.
-- docs/scale.md, "Nodes", says what each is for.

ALTER TABLE nodes
    ADD COLUMN is_reached boolean NOT NULL DEFAULT false,
    ADD COLUMN version text NOT NULL DEFAULT '',
    ADD COLUMN settings_digest text NOT NULL DEFAULT '',
    ADD COLUMN expires_at timestamptz NOT NULL DEFAULT 'infinity',
    ADD COLUMN dead boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX nodes_by_address ON nodes (tenant, address) WHERE is_reached AND NOT dead;

ALTER TABLE threads ADD COLUMN has_work boolean NOT NULL DEFAULT false;
CREATE INDEX threads_by_work ON threads (tenant, owner) WHERE has_work AND owner IS NOT NULL;
