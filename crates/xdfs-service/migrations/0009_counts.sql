-- The sums over the transfers of a job, which may be many, and its first places. bytes_total is
-- the sum of those totals that are known, and totals_count their number.
ALTER TABLE jobs ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN target TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN transfers_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN bytes_total BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN totals_count BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN files BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;

UPDATE jobs SET
    source = COALESCE((SELECT source FROM transfers WHERE job_id = jobs.id AND position = 0), ''),
    target = COALESCE((SELECT target FROM transfers WHERE job_id = jobs.id AND position = 0), ''),
    transfers_count = (SELECT COUNT(*) FROM transfers WHERE job_id = jobs.id),
    bytes = COALESCE((SELECT CAST(SUM(bytes) AS BIGINT) FROM transfers WHERE job_id = jobs.id), 0),
    bytes_total = COALESCE(
        (SELECT CAST(SUM(bytes_total) AS BIGINT) FROM transfers WHERE job_id = jobs.id), 0),
    totals_count = (SELECT COUNT(bytes_total) FROM transfers WHERE job_id = jobs.id),
    files = COALESCE((SELECT CAST(SUM(files) AS BIGINT) FROM transfers WHERE job_id = jobs.id), 0),
    failed = COALESCE((SELECT CAST(SUM(failed) AS BIGINT) FROM transfers WHERE job_id = jobs.id), 0);

CREATE INDEX transfers_running ON transfers (job_id, position) WHERE state = 'running';
CREATE INDEX transfers_failed ON transfers (job_id, position) WHERE state = 'failed';

-- The bytes of a job over time, as JSON.
CREATE TABLE curves (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    curve TEXT NOT NULL
);
