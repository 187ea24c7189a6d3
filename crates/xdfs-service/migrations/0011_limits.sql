-- How the files of a job were copied: the attempt of their transfer in which they arrived, and of
-- those that were a transfer of their own also the rate and its limit.
ALTER TABLE manifest_files ADD COLUMN attempts BIGINT NOT NULL DEFAULT 1;
ALTER TABLE manifest_files ADD COLUMN rate BIGINT;
ALTER TABLE manifest_files ADD COLUMN limited_by TEXT;

UPDATE manifest_files SET attempts = attempt;

-- The limit of the largest transfer of late on a link, and when that ended.
ALTER TABLE links ADD COLUMN limited_by TEXT;
ALTER TABLE links ADD COLUMN limited_at BIGINT;
