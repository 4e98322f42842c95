"""The papers' tables and figures, next to the published values; Table 1 in every report; the dual-label experiment."""
