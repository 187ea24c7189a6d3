-- Manifests: the files of jobs that keep a list of them.

ALTER TABLE jobs ADD COLUMN manifest BIGINT NOT NULL DEFAULT 0;

-- The published path of the target, in hex.
ALTER TABLE transfers ADD COLUMN target_path TEXT;
-- All of its files have a row.
ALTER TABLE transfers ADD COLUMN listed BIGINT NOT NULL DEFAULT 0;
-- Rows of earlier attempts count no more: one of them ended without a word.
ALTER TABLE transfers ADD COLUMN listed_from BIGINT NOT NULL DEFAULT 0;

CREATE TABLE manifest_files (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    -- Relative. One that isn't UTF-8 is / and its bytes in hex.
    path TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    blake3 TEXT NOT NULL,
    at BIGINT NOT NULL,
    -- The last attempt in which it was seen.
    attempt BIGINT NOT NULL,
    PRIMARY KEY (job_id, position, path)
);
