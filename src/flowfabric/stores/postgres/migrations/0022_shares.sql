-- Shares of tenants on a lane, as JSON; NULL: all alike.
ALTER TABLE ff_lane_registry ADD COLUMN tenant_weights TEXT;
