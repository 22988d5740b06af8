// Command pandastack is the daemon and the command line in one program.
package main

func main() {}
