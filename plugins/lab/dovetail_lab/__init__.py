"""Many runs: sweeps, A/B tests with a verdict, and reports about them."""
