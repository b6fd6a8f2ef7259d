"""What is made of a result: averages, tables, corrections, modes."""
