"""Metrics, health and status of the job."""
