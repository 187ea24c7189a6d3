-- Priority, times and deletion of jobs.

ALTER TABLE jobs ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN starts_at BIGINT;
ALTER TABLE jobs ADD COLUMN deadline BIGINT;
ALTER TABLE jobs ADD COLUMN keep_until BIGINT;
-- Such a job is there no more: its rows are removed in parts.
ALTER TABLE jobs ADD COLUMN deleted_at BIGINT;

DROP INDEX jobs_to_claim;
CREATE INDEX jobs_to_claim ON jobs (priority DESC, id) WHERE state IN ('queued', 'retrying');
CREATE INDEX jobs_by_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND ended_at IS NULL;
CREATE INDEX jobs_to_expire ON jobs (ended_at, keep_until, id)
    WHERE ended_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_deleted ON jobs (id) WHERE deleted_at IS NOT NULL;
