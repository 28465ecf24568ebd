-- Sums of the ledger of usage of each thread; docs/usage.md, "Ledger".

ALTER TABLE threads ADD COLUMN usage text COLLATE "C" NOT NULL DEFAULT '[]';
