"""The rules of the Event Stream Extensions about links: no I/O and no clock. Time is an argument."""
