"""Authentication, authorization, and the destinations to which events may be delivered."""
