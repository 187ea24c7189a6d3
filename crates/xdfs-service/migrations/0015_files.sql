-- The files of trees whose job keeps no list for a manifest, some hundred in a row, in the order in
-- which they arrived: many small rows would cost more than their copies.

CREATE TABLE file_batches (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    -- The attempt of the transfer.
    attempt BIGINT NOT NULL,
    -- JSON: of each file its path, bytes, digest, time, rate and its limit.
    files TEXT NOT NULL,
    PRIMARY KEY (job_id, number)
);

-- The digest of a single file, and its rate over the last attempt.
ALTER TABLE transfers ADD COLUMN digest TEXT;
ALTER TABLE transfers ADD COLUMN rate BIGINT;
