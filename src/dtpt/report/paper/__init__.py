"""The paper: its numbers, what may be compared with them, what each table needs and costs."""
