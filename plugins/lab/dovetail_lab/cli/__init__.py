"""The commands `dovetail sweep`, `ab` and `report`: their options. What they do is imported when they run."""
