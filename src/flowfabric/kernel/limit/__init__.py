"""What budgets and quotas allow."""
