"""Authentication, authorization, and the destinations that events may be delivered to."""
