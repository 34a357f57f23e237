"""What every measurement uses: sessions that are sent, who reads the outputs, contenders, CPU and memory of processes."""
