"""Reports as one self-contained HTML file: of runs, of sweeps, of A/B tests."""
